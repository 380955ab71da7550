"""OfficeHome: 65 everyday things as art, clip art, product pictures and photos (Venkateswara et al., 2017)."""

from __future__ import annotations

from fedhpc.data._domain_folders import DomainFolders

_CLASSES = """
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle
Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes
Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon TV Table
Telephone ToothBrush Toys Trash_Can Webcam
"""

SOURCE = DomainFolders(
    name="office_home",
    environments={"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},
    classes=tuple(_CLASSES.split()),
    archives=("office_home.zip", "OfficeHomeDataset_10072016.zip"),
)
